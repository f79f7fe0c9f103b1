"""What a barrier orders beside what it hands on: state, effects, and sums."""

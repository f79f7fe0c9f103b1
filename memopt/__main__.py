"""`python -m memopt`: the command line."""

from memopt.cli import main

if __name__ == "__main__":
    main(prog_name="memopt")

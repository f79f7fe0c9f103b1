"""Operations split along their first dimension: what can be, where it pays, how it is written."""

"""What a long computation is of: functions, inputs and arguments, so that only the same one is resumed."""

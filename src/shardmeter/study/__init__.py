"""The questions: predict, explain, validate. Each takes records and returns records; nothing here prints."""

"""The command line: arguments, what each command does, exit codes."""

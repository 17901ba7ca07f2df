"""`python -m pubsub_emulator`: the command as a module, for a caller that has the interpreter but not the script."""

from pubsub_emulator.command import main

main()

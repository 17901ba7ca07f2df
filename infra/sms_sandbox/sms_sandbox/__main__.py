"""`python -m sms_sandbox`: the command as a module, for a caller that has the interpreter but not the script."""

from sms_sandbox.command import main

main()

"""What is wrong with this machine, and what to do about it: look first, then judge, change nothing.

Each module looks at one part, and judges what it saw by a pure function; `examination` has the
table of checks. A look that fails is a finding, and no other check suffers from it.
"""

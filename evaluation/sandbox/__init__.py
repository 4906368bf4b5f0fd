"""Programs that models write are run here, locked in.

filters.py  which system calls are left to a program, as a seccomp filter
jail.py     the process that forks a locked child for every program; standard library only
runner.py   our side: starts the jail, asks it, bounds its time, and tests at the start that it holds
"""

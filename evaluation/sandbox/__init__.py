"""Sandbox: runs programs that models write in a locked process."""

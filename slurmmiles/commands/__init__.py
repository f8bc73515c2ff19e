"""The commands of the command line, a module for each family; a command's body is at most fifteen
lines.
"""

"""The loop over the runs of one repository, and the execution of commands."""

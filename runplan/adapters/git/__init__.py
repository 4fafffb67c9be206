"""Git: runplan's own repositories for a project, and the worktrees that agents get."""

"""What a process of a run sees and may write."""

"""What runplan costs, as ratios against a floor measured in the same minutes."""

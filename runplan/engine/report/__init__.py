"""The account for people, and the views of plans and runs."""

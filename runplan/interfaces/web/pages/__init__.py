"""The pages, one module for each group of them. Each module lists its ROUTES."""

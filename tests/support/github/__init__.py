"""A stand-in for GitHub: its REST answers and texts over a real bare repository (hub), served by HTTP (server)."""

"""How a run is carried out."""

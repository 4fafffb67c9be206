"""Faces: parse words, print facts. No decisions."""

"""Validation against measured training across islands."""

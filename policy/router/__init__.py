"""The router (EPP): what its configuration says."""

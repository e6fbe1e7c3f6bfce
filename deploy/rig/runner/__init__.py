"""Plays the kubelet for pods whose image is a program (programs.py): ``python -m deploy.rig.runner CONFIG``."""

"""The app that Flower carries: only names, the code is in the installed fedpg."""

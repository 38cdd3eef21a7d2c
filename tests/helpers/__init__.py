"""What several tests need: a tiny MDP with all its trajectories, small environments, comparisons of pytrees."""

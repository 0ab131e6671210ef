"""Published efficiencies of training over several sites against what is predicted of all that may have been run."""

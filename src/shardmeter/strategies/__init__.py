"""Ways to divide the work inside an island: one file each. A strategy emits demands and never knows a bandwidth."""

"""In and out: the files of other tools as scenarios and back (`configs`), and what their runs print as measured numbers (`logs`)."""

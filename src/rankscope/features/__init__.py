"""One folder for each thing that rankscope does beyond dumps, lanes, live jobs and reports."""

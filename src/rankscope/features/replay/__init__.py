"""The operations of each rank around a failure, as a schedule that can be simulated, made smaller and run again."""

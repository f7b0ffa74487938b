"""What was measured: samples and failures by kernel, sizes, device and driver, and where they are kept."""

"""From layers to a running step: wiring, step lists, memory plan, execution."""

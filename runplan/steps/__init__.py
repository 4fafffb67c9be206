"""One module per action: has it happened already, and how is it done."""

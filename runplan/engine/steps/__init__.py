"""The actions: has it happened already, and how is it done."""

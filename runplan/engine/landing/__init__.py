"""Landing: how a candidate reaches its target. `modes` lists the ways, `lander` has the contract."""

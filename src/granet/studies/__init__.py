"""Many runs that answer one question: grids, and what is made of them."""

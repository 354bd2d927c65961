"""Studies: experiments made of several trainings."""

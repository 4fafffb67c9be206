"""Views of repositories, plans, changes, journals and agents as data, for every interface."""

"""What a person types. The verbs stand in `app`."""

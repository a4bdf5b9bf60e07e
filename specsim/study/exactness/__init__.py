"""Whether what a step emits has the target's law: by enumeration, without sampling."""

"""Derivative rules: functions whose derivative their author gives, and functions that run on the host."""

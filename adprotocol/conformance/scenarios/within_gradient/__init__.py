"""`within_gradient`: is a derivative being propagated through this value?"""

"""Where does it run?"""

package natsconf

// Sever lets tests outside the package do what a start does before it begins the server.
func Sever(e *Embedded) { e.staging.sever() }

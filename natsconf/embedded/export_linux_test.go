package embedded

// Sever lets tests outside the package do what a start does before it begins the server.
func Sever(e *Server) { e.staging.sever() }

package embedded

// Sever does what a start does before it begins the server, for tests outside the package.
func Sever(e *Server) { e.staging.sever() }

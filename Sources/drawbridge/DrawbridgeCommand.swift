@main enum DrawbridgeCommand { static func main() {} }

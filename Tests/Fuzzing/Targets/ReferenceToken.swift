/// A `tchar` (RFC 9110 §5.6.2), as the standard lists them.
func isToken(_ byte: UInt8) -> Bool {
  switch Unicode.Scalar(byte) {
  case "0"..."9", "a"..."z", "A"..."Z": true
  case "!", "#", "$", "%", "&", "'", "*", "+", "-", ".", "^", "_", "`", "|", "~": true
  default: false
  }
}

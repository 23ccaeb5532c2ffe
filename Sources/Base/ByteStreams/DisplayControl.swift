extension Unicode.Scalar {
  /// Whether a terminal or a viewer may act on this character instead of showing it: C0 controls, DEL, C1 controls,
  /// line and paragraph separators, the byte order mark, noncharacters, and the marks, embeddings, overrides and
  /// isolates that reorder text (UAX #9 §2).
  package var controlsDisplay: Bool {
    switch value {
    case 0x00..<0x20, 0x7F...0x9F: true
    case 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: true
    case 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF: true
    default: false
    }
  }
}

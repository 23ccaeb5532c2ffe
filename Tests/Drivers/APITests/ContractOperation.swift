@testable import API

/// An operation of `openapi.yaml`: a path with a method.
struct ContractOperation {
  let path: String
  let method: String
  /// Whether only management listeners serve it.
  var isManagement = false
  /// Whether it needs no credentials.
  var isPublic = false
  var takesIdempotencyKey = false
  var queryParameters: [String] = []
  /// The declared header fields of each status.
  var fields: [Int: Set<String>] = [:]

  var statuses: Set<Int> { Set(fields.keys) }

  static func all() -> [ContractOperation] {
    var found: [ContractOperation] = []
    var path = ""
    var isManagement = false
    var status = 0
    var isInHeaders = false
    for line in String(decoding: OpenAPIDocument.text, as: UTF8.self).split(separator: "\n") {
      if line.hasPrefix("components:") { break }
      if line.hasPrefix("  /") {
        path = String(line.dropFirst(2).dropLast())
        isManagement = false
      }
      if line.hasPrefix("    servers:") { isManagement = true }
      if line.hasPrefix("    "), !line.hasPrefix("     "), line.hasSuffix(":") {
        found.append(
          ContractOperation(
            path: path, method: line.dropFirst(4).dropLast().uppercased(), isManagement: isManagement))
      }
      if line == "      security: [{}]" { found[found.count - 1].isPublic = true }
      if line.contains("{name: Idempotency-Key, in: header") { found[found.count - 1].takesIdempotencyKey = true }
      if line.contains("in: query"), let start = line.firstRange(of: "{name: ") {
        found[found.count - 1].queryParameters.append(String(line[start.upperBound...].prefix { $0 != "," }))
      }
      if line.hasPrefix("        '"), let number = Int(line.dropFirst(9).prefix(3)) {
        status = number
        found[found.count - 1].fields[status] = []
      }
      switch line.prefix(while: { $0 == " " }).count {
      case ...10: isInHeaders = line == "          headers:"
      case 12 where isInHeaders:
        found[found.count - 1].fields[status]?.insert(line.dropFirst(12).prefix { $0 != ":" }.description)
      default: break
      }
    }
    return found
  }
}

import Profiles

/// Reads the variables of a profile.
extension StructureReader {
  static let variableMembers: [ValueSchema.Member] = [
    .init("pattern", .text), .init("maximum_length", .integer(1...ProfileVariable.longestValue)),
    .init("default", .text),
  ]

  func variables(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [ProfileVariable] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .mapping(let pairs) = node.value, pairs.count <= ProfileVariable.maximumCount else {
      throw fail(
        node,
        "'\(key)' must map at most \(ProfileVariable.maximumCount) names to their patterns, as in {symbol: {pattern: '[A-Z]{3,8}'}}"
      )
    }
    var result: [ProfileVariable] = []
    for (name, value) in pairs {
      let variable = try readVariable(value, try scalar(name, key), at: name, key)
      guard !result.contains(where: { $0.name == variable.name }) else {
        throw fail(name, "'\(key).\(variable.name)' is set twice")
      }
      result.append(variable)
    }
    return result
  }

  private func readVariable(
    _ node: YAMLNode, _ name: String, at place: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> ProfileVariable {
    guard ProfileVariable.isName(name) else {
      throw fail(place, "'\(name)' is not valid as the name of a variable: use \(ProfileVariable.nameExpectation)")
    }
    var variable = ProfileVariable(name: name)
    if case .scalar(let text) = node.value, text.isEmpty { return variable }
    let key = "\(key).\(name)"
    for (member, value) in try members(node, key, Self.variableMembers.map(\.name)) {
      let text = try scalar(value, "\(key).\(member)")
      switch member {
      case "pattern":
        guard let pattern = VariablePattern(text) else {
          throw fail(value, "'\(text)' is not valid for '\(key).pattern': use \(VariablePattern.expectation)")
        }
        variable.pattern = pattern
      case "maximum_length":
        guard let length = Int(text), (1...ProfileVariable.longestValue).contains(length) else {
          throw fail(
            value,
            "'\(text)' is not valid for '\(key).maximum_length': use a number from 1 to \(ProfileVariable.longestValue)"
          )
        }
        variable.maximumLength = length
      default: variable.defaultValue = text
      }
    }
    if let value = variable.defaultValue, let problem = variable.problem(with: value) {
      throw fail(node, "the default of '\(key)' is not accepted: \(problem)")
    }
    return variable
  }
}

extension ConfigurationLoader {
  /// The result of loading: the settings, where each came from, and what was wrong without being an error.
  package struct Outcome: Sendable {
    package let settings: GatewaySettings
    /// The place of each setting that was set.
    package let origins: [String: String]
    /// The place of each named session. Apart from `origins`: a session's name may look like the path of a setting.
    let sessionPlaces: [String: String]
    /// What is wrong; empty: the settings can be used.
    package let errors: [ConfigurationError]
    package let warnings: [ConfigurationError]
    /// Each setting's values as they were written, except of structured ones.
    let written: [String: [WrittenValue]]
    /// The settings whose value could not be used; they have their defaults.
    let failed: Set<String>
    /// The settings, or sections, of which the loader has found that they do not fit others.
    var conflicting: Set<String> = []
    /// Whether a part of the file could not be read as settings. What is not set may have been meant there.
    let hasUnreadParts: Bool

    /// The value for a terminal: secrets, userinfo and queries are not in it, and references (`${env:NAME}`) stand as they were
    /// written.
    package func shown(_ setting: Setting) -> String {
      if setting.isSecret, origins[setting.path] != nil { return "(secret)" }
      let written = written[setting.path] ?? []
      guard setting.isURL || written.contains(where: \.hasReferences) else { return setting.show(settings) }
      let texts = written.map { PrintableText.quoted(setting.masked($0)) }
      return setting.isList ? "[\(texts.joined(separator: ", "))]" : texts.first ?? setting.show(settings)
    }

    /// Throws `errors`, if there are any.
    package func check() throws(ConfigurationErrors) {
      if !errors.isEmpty { throw ConfigurationErrors(errors: errors) }
    }

    /// The settings to show: those of the top of the file, and of each named session what was set or is not the default.
    package var shownSettings: [Setting] {
      let defaults = GatewaySettings()
      let named = settings.sessions.flatMap { Setting.named($0.name) }
      return Setting.all + named.filter { origins[$0.path] != nil || $0.show(settings) != $0.show(defaults) }
    }

    /// The same with errors for these problems, which the loader has found.
    func adding(_ problems: SettingProblems) -> Outcome {
      Outcome(
        settings: settings, origins: origins, sessionPlaces: sessionPlaces, errors: errors(with: problems).errors,
        warnings: warnings, written: written, failed: failed, conflicting: Set(problems.problems.map(\.key)),
        hasUnreadParts: hasUnreadParts)
    }

    /// `errors`, and those for problems that were found in `settings` later, each with its place and the value as it may be shown.
    package func errors(with problems: SettingProblems) -> ConfigurationErrors {
      let room = max(0, ConfigurationErrors.limit - errors.count)
      let later = problems.problems.lazy.filter { !followsFromErrors($0) }.prefix(room).map(error)
      return ConfigurationErrors(errors: errors + later)
    }

    /// Whether a setting of this section could not be used, or does not fit others.
    package func hasErrors(in section: String) -> Bool {
      let session = session(of: section)
      let isInside = { [self] (key: String) in
        (key == section || key.hasPrefix(section + ".")) && self.session(of: key) == session
      }
      return failed.contains(where: isInside) || conflicting.contains(where: isInside)
    }

    /// Whether the problem may only follow from one of `errors`: the setting may have been meant by a key that is unknown, or it
    /// does not fit one of its section that could not be used.
    private func followsFromErrors(_ problem: SettingProblem) -> Bool {
      if hasUnreadParts, !isSet(problem.key) { return true }
      if problem.others.contains(where: failed.contains) { return true }
      guard problem.subject == .none else { return false }
      let section = Self.section(of: problem.key)
      let session = session(of: problem.key)
      return failed.contains {
        ($0.hasPrefix(problem.key + ".") || Self.section(of: $0) == section) && self.session(of: $0) == session
      }
    }

    private static func section(of key: String) -> Substring { key[..<(key.lastIndex(of: ".") ?? key.startIndex)] }

    private func error(for problem: SettingProblem) -> ConfigurationError {
      let values = written[problem.key] ?? []
      var shown: String?
      var itemPlace: String?
      switch problem.subject {
      case .none: break
      case .value: shown = setting(problem.key)?.shownInError(values)
      case .item(let index):
        // Values of a variable may have been split after its references were replaced: then they cannot be told apart.
        guard let item = index < values.count ? values[index] : values.first else { break }
        itemPlace = item.place
        shown = setting(problem.key)?.shownInError([item])
      }
      let what = shown.map { "\($0) is not right for '\(problem.key)'" } ?? "'\(problem.key)' cannot be used"
      return ConfigurationError(place: itemPlace ?? place(of: problem.key), message: "\(what): \(problem.reason)")
    }

    private func setting(_ key: String) -> Setting? { settings(beside: key).first { $0.path == key } }

    /// The settings of the session that `key` belongs to, or of the top of the file.
    private func settings(beside key: String) -> [Setting] { session(of: key).map(Setting.named) ?? Setting.all }

    /// The named session that `key` belongs to. Its name may contain dots, and may begin with another session's name and a dot: then
    /// that session's settings do not follow it, because no setting's path has `upstream` or `delivery` inside.
    private func session(of key: String) -> String? {
      guard key.hasPrefix("sessions.") else { return nil }
      var longest: String?
      for session in settings.sessions where key.hasPrefix(session.pathPrefix) {
        let part = key.dropFirst(session.pathPrefix.count).prefix { $0 != "." }
        guard part == "upstream" || part == "delivery", session.name.count > longest?.count ?? 0 else { continue }
        longest = session.name
      }
      return longest
    }

    /// Whether `key`, or a setting of that section, was set.
    private func isSet(_ key: String) -> Bool { origins[key] != nil || firstSet(in: key) != nil }

    /// The place of the first setting of the section `key` that was set.
    private func firstSet(in key: String) -> String? {
      settings(beside: key).lazy.filter { $0.path.hasPrefix(key + ".") }.compactMap { origins[$0.path] }.first
    }

    /// Where `key` was set; for a section, where the first of its settings was; for what a named session lacks, where the session
    /// is. Empty where it has its default.
    private func place(of key: String) -> String {
      origins[key] ?? firstSet(in: key) ?? session(of: key).flatMap { sessionPlaces[$0] } ?? ""
    }
  }
}

extension Setting {
  /// `values` for an error message: as they were written, and nothing of a secret.
  func shownInError(_ values: [WrittenValue]) -> String {
    if isSecret { return "this value" }
    return "'" + values.map(masked).joined(separator: ", ") + "'"
  }

  /// `value` as it was written, a URL without userinfo and query.
  func masked(_ value: WrittenValue) -> String {
    isURL && !value.isReference ? MaskedURL.text(value.text) : value.text
  }
}

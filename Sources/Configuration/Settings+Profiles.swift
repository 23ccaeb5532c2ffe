import ByteStreams
import Profiles
import Sessions
import Upstream
import UpstreamProtocol
import WebSocketCodec

/// Profiles, and the limits of the sessions that clients create from them.
extension SettingSection {
  static func createdSessions(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let created = gateway.section("created_sessions", \.createdSessions)
    return SettingSection(
      settings: [
        created("total", \.total, .count(0...100_000), "maximum number of sessions that clients create; above it 503"),
        created(
          "per_principal", \.perOwner, .count(0...100_000),
          "maximum number of sessions that one principal creates; above it 503"),
        created(
          "idle_after", \.idleAfter, .duration(.seconds(1)...(day * 365)),
          "time without senders and readers after which a created session is closed"),
      ],
      orders: [
        created.order(
          "per_principal", \.perOwner, "total", \.total, "no principal can create more sessions than all together",
          isWarning: true)
      ])
  }

  /// The settings that only a profile has.
  static func variables(_ profile: SettingScope<SessionProfile>) -> SettingSection {
    let rules = profile.section("addresses", \.rules)
    return SettingSection(
      settings: [
        profile("variables", \.variables, .variables, "variables for which a client gives the values"),
        profile(
          "hosts", \.rules.hosts, .hostPatterns,
          "hosts that sessions may connect to, also after a redirect; empty: any public host"),
        rules("allow", \.allowed, .addressBlocks, "addresses that are allowed although they are not public"),
      ], rules: [profile.rule(problems)])
  }

  /// The settings of a session's URLs, with variables.
  static func urls(_ profile: SettingScope<SessionProfile>) -> [Setting] {
    let upstream = profile.section("upstream", \.self)
    return [
      upstream("url", \.url, .urlTemplate, "URL of the WebSocket service, with variables such as {symbol}"),
      upstream(
        "fallback_urls", \.fallbackURLs, .urlTemplates,
        "further URLs of the same upstream, tried in this order when the first fails"),
    ]
  }

  /// The problems of a profile that can be found before a client creates a session.
  private static func problems(_ profile: SessionProfile) -> [SettingProblem] {
    guard !profile.configuration.upstream.urlSource.isSet else {
      return [
        SettingProblem(
          "upstream.url", .none,
          "a profile needs a URL: only the session default and sessions below 'sessions' can get it from a command or file"
        )
      ]
    }
    guard profile.url != nil else {
      return [SettingProblem("upstream.url", .missing, "every profile needs a URL")]
    }
    var problems: [SettingProblem] = []
    let names = Set(profile.variables.map(\.name))
    func check(_ used: Set<String>, _ key: String, _ subject: SettingProblem.Subject) {
      for name in used.subtracting(names).sorted() {
        problems.append(SettingProblem(key, subject, "variable '{\(name)}' is not declared in 'variables'"))
      }
    }
    let upstream = profile.sample
    for (index, url) in profile.urls.enumerated() {
      let key = index == 0 ? "upstream.url" : "upstream.fallback_urls"
      let subject: SettingProblem.Subject = index == 0 ? .value : .item(index - 1)
      check(url.variables, key, subject)
      let isProxied = upstream.proxy(for: url.sample) != nil
      if url.hasVariableHost {
        guard profile.rules.hosts.isEmpty else { continue }
        problems.append(
          SettingProblem(key, subject, "a variable is part of the host: list the hosts that are possible in 'hosts'"))
      } else if let reason = profile.rules.refusal(ofHost: url.sample.host, isProxied: isProxied) {
        problems.append(SettingProblem(key, subject, reason))
      }
    }
    if profile.urls.contains(where: \.hasVariableHost), profile.rules.hosts.isAny, let secret = secret(in: upstream) {
      problems.append(
        SettingProblem(
          "hosts", .none,
          "with '*', a client chooses the host, which would receive \(secret): list the hosts that may receive it"))
    }
    problems += addedParameters(profile.urls.map(\.sample), upstream, prefix: "upstream.")
    for (index, field) in upstream.fields.enumerated() {
      check(VariableText(field.value).variables, "upstream.headers", .item(index))
    }
    return problems
  }
}

extension SettingSection {
  /// The setting with a secret that a session sends to its upstream, and that a client must not learn; nil if there is
  /// no such setting. A header field is treated as a secret, as in redirections to another host, unless its value
  /// depends on the client.
  fileprivate static func secret(in upstream: UpstreamSettings) -> String? {
    if upstream.conventions.credential.source != nil { return "'upstream.credential'" }
    if upstream.urls.contains(where: { $0.basicAuthorization != nil }) { return "the credentials in the URL" }
    let conventions = upstream.conventions
    if let (key, _) = conventions.templates.first(where: { !$0.template.files.isEmpty }) {
      return "a file of 'upstream.\(key)'"
    }
    if let declaration = conventions.declaration, declaration.templates.contains(where: { !$0.files.isEmpty }) {
      return "a file of '\(declaration.section)'"
    }
    let field = upstream.fields.first { field in
      !["origin", "user-agent"].contains(field.name.lowercased()) && VariableText(field.value).variables.isEmpty
    }
    return field.map { "the header field '\($0.name)'" }
  }
}

extension ValueFormat where Value == [ProfileVariable] {
  static var variables: ValueFormat {
    .structure(
      "names with patterns, as in {symbol: {pattern: '[A-Z]{3,8}'}}",
      schema: .pairs(.members(StructureReader.variableMembers)), read: StructureReader.variables,
      format: StructureText.text(of:))
  }
}

extension ValueFormat where Value == URLTemplate? {
  static var urlTemplate: ValueFormat {
    ValueFormat(
      expectation: URLTemplate.expectation, isURL: true,
      reader: .scalar { text throws(InvalidValue) in text.isEmpty ? nil : try readURLTemplate(text) },
      format: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueFormat where Value == [URLTemplate] {
  static var urlTemplates: ValueFormat {
    .list(URLTemplate.expectation, isURL: true, read: readURLTemplate, format: \.text)
  }
}

private func readURLTemplate(_ text: String) throws(InvalidValue) -> URLTemplate {
  do throws(VariableError) {
    return try URLTemplate(text)
  } catch {
    throw InvalidValue(reason: error.description)
  }
}

extension ValueFormat where Value == HostPatterns {
  static var hostPatterns: ValueFormat {
    ValueFormat(
      expectation: "a list", schema: .texts,
      reader: .list(isMapping: false) { texts throws(InvalidValue) in
        do throws(HostPatternError) {
          return try HostPatterns(texts)
        } catch {
          throw InvalidValue(index: error.index, reason: HostPatterns.expectation)
        }
      }, format: { StructureText.list($0.texts) })
  }
}

extension ValueFormat where Value == [AddressBlock] {
  static var addressBlocks: ValueFormat {
    .list { text throws(InvalidValue) in
      guard let block = AddressBlock(text) else { throw InvalidValue(reason: AddressBlock.expectation) }
      return block
    } format: {
      $0.description
    }
  }
}

extension StructureText {
  static func text(of variables: [ProfileVariable]) -> String {
    let items = variables.map { variable in
      var members: [String] = []
      if let pattern = variable.pattern { members.append("pattern: \(PrintableText.quoted(pattern.description))") }
      members.append("maximum_length: \(variable.maximumLength)")
      if let value = variable.defaultValue { members.append("default: \(PrintableText.quoted(value))") }
      return "\(variable.name): {\(members.joined(separator: ", "))}"
    }
    return "{\(items.joined(separator: ", "))}"
  }
}

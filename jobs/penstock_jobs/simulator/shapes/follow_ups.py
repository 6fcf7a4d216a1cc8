"""What users say to the result: satisfied, or dissatisfied in one of several ways.

Slots: `<path>` and `<file>` a file of the session, `<func>`, `<type>` and `<plain>` identifiers of
the file in focus, `<key>` and `<word>` words that it uses, `<noun>`, `<quality>` and `<act>` any.
"""

from penstock_jobs.simulator.grammar import lines

SATISFIED = {
    "en": lines("""
perfect, thanks. next: <request>
That works, thank you! Now <request>
lgtm, commit it please
Nice, <func> is much clearer now. <request>
great. can you also do the same <where>?
yep that fixed the <key>. <request>
Works on my machine and in staging. Let's continue: <request>
"""),
    "de": lines("""
Super, passt so. Kannst du das Gleiche noch in `<path>` machen?
Danke, der Fehler mit <plain> ist weg. Bitte noch einen Test für <func>.
Sieht gut aus, bitte committen.
"""),
    "es": lines("""
Perfecto, ya funciona. Ahora haz lo mismo en `<path>`, por favor.
Gracias, <func> quedó muy bien. ¿Puedes añadir una prueba con <num> filas?
"""),
    "fr": lines("""
Parfait, merci. Peux-tu faire pareil dans `<path>` ?
Ça marche, <func> renvoie enfin la bonne valeur. Tu peux committer.
"""),
    "pt": lines("""
Ótimo, funcionou. Agora ajusta também o `<path>`, por favor.
Valeu! O <plain> está certo. Pode criar um teste para <func>?
"""),
    "zh": lines("""
很好,问题解决了。请在 `<path>` 里也这样改。
可以了,谢谢。再给 <func> 加一个测试吧。
"""),
    "ja": lines("""
ありがとう、直りました。次は `<path>` も同じように直してください。
いいですね。<func> のテストも追加してもらえますか?
"""),
}

# By way of dissatisfaction, then by language.
DISSATISFIED = {
    "still_broken": {
        "en": lines("""
still broken. same "<error>: <word> <complaint>" <where>
no change here, <plain> is still <num> after your fix. did you even run it?
It fails again, now <where>. Look at <func> properly this time.
"""),
        "de": lines("""
Geht immer noch nicht, gleicher Fehler in <func>.
Leider unverändert: <plain> ist weiterhin <num>. Bitte nochmal genauer ansehen.
"""),
        "es": lines("""
Sigue fallando igual que antes en `<path>`.
No, <plain> todavía vale <num>. Revísalo otra vez.
"""),
        "fr": lines("""
Toujours la même erreur dans <func>, rien n'a changé.
Non, ça plante encore : <error> dans `<path>`.
"""),
        "pt": lines("""
Continua quebrado, o mesmo <error> em `<path>`.
Não mudou nada: <plain> ainda é <num>.
"""),
        "zh": lines("""
还是不行,<func> 依然报 <error>。
没有变化,<plain> 还是 <num>,请再检查一下。
"""),
        "ja": lines("""
まだ直っていません。<func> で同じ <error> が出ます。
変わらないです。<plain> が <num> のままです。
"""),
    },
    "misunderstood": {
        "en": lines("""
That's not what I asked for. I wanted <func> to be the place that <goal>, not `<path>`.
no no, leave <plain> alone! i only meant the <qualifier> <key>
You misread me: the <key> is fine, the <word> is the one that <complaint>.
"""),
        "de": lines("""
Das war nicht gemeint, du solltest nur <func> ändern und nicht `<path>`.
"""),
        "es": lines("""
Eso no es lo que pedí: solo había que tocar <func>.
"""),
        "fr": lines("""
Ce n'est pas ce que j'ai demandé, il fallait seulement corriger <func>.
"""),
        "pt": lines("""
Não foi isso que eu pedi, era só para mexer em <func>.
"""),
        "zh": lines("""
这不是我要的,我只想改 <func>,不要动 `<path>`。
"""),
        "ja": lines("""
そうではなくて、<func> だけを変えてほしかったのです。
"""),
    },
    "undo": {
        "en": lines("""
revert that please, I'd rather keep <func> as it was
undo the change to `<path>`, it makes <plain> worse
Roll this back. We can't have <func> return a <type>, <module> depends on it.
"""),
        "de": lines("""
Bitte mach die Änderung in `<path>` wieder rückgängig.
"""),
        "es": lines("""
Deshaz el cambio en `<path>`, por favor.
"""),
        "fr": lines("""
Annule la modification de `<path>`, s'il te plaît.
"""),
        "pt": lines("""
Desfaz a mudança em `<path>`, por favor.
"""),
        "zh": lines("""
请撤销对 `<path>` 的修改。
"""),
        "ja": lines("""
`<path>` の変更を元に戻してください。
"""),
    },
    "corrected": {
        "en": lines("""
I fixed it myself: <plain> has to be set before <func>. Next time check the order.
almost, but <num> must be <num2> and the <key> <complaint>. change that
Why did you add a <type>? There is <func2> for that. Use it.
you forgot the <qualifier> <word>, the <module> tests say so
"""),
        "de": lines("""
Fast, aber <plain> muss <num> sein. Bitte korrigieren.
"""),
        "es": lines("""
Casi, pero <plain> tiene que ser <num>. Corrígelo.
"""),
        "fr": lines("""
Presque, mais <plain> doit valoir <num>. Corrige ça.
"""),
        "pt": lines("""
Quase, mas <plain> precisa ser <num>. Corrige isso.
"""),
        "zh": lines("""
差一点,<plain> 应该是 <num>,请改一下。
"""),
        "ja": lines("""
惜しいですが、<plain> は <num> にしてください。
"""),
    },
    "fed_up": {
        "en": lines("""
this is the third time. forget it, I'll do <func> by hand
ugh. you keep breaking `<path>`. stop guessing and read it
Honestly useless, the <key> worked before you touched it.
"""),
        "de": lines("""
So wird das nichts, ich mache es selbst.
"""),
        "es": lines("""
Déjalo, lo hago yo a mano.
"""),
        "fr": lines("""
Laisse tomber, je vais le faire moi-même.
"""),
        "pt": lines("""
Deixa, eu mesmo faço.
"""),
        "zh": lines("""
算了,我自己来改。
"""),
        "ja": lines("""
もういいです、自分でやります。
"""),
    },
}
